"""A local page to look at hard negatives and to mark false ones."""
