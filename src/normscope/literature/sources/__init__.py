"""Services that know papers: arXiv, OpenAlex, Semantic Scholar; how they are asked, and what is remembered.

The clients on PyPI were tried (arxiv 4.0, pyalex 0.21, semanticscholar 0.12). Together they bring lxml,
requests, httpx and tenacity; arxiv and pyalex set no timeout, none of them bounds the size of an answer,
arxiv and semanticscholar ignore Retry-After, and semanticscholar writes API keys to its debug log. Three
services with four addresses need less code than three clients with three ways to fail, so they are asked
with urllib.
"""
