"""The V4A patch format: read, matched with the files of a folder, and applied to all of them or to none."""

from promptools.toolsets.patch.patch_application import apply_patch, patch_tool
from promptools.toolsets.patch.patch_document import PatchError

__all__ = ["PatchError", "apply_patch", "patch_tool"]
