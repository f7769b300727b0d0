"""The words of tunefarm as frozen dataclasses, enums, keys and the error tree. Standard library only."""
