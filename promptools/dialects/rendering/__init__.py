"""What prompt mode writes in a dialect: the declaration of tools, example calls, values. Nothing here reads a reply."""
