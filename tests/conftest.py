"""Puts this folder on the import path, so that every suite can read the case tables through `casebook`."""
