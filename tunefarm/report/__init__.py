"""What a store's trials say: summaries (pure), and the tables that show them."""
