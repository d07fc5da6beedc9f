"""One declared table an engine: which raw series means which measure, which paths are safe, what is never
asked.
"""
