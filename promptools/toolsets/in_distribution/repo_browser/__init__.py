"""The tools of `repo_browser`: trees, lists, searches and files, inside the workspace only."""

from promptools.toolsets.in_distribution.repo_browser.file_reader import FileReader
from promptools.toolsets.in_distribution.repo_browser.file_search import FileSearch
from promptools.toolsets.in_distribution.repo_browser.folder_lister import FolderLister
from promptools.toolsets.in_distribution.repo_browser.workspace_files import PathError, WorkspaceFiles

__all__ = ["FileReader", "FileSearch", "FolderLister", "PathError", "WorkspaceFiles"]
