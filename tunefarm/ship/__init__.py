"""Winners out of the store into signed bundles, and bundles to where they are used."""
