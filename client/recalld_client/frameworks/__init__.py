"""Adapters for Python agent frameworks, one file each: what happens in a run is told, what comes to mind is inserted.

Each file imports its framework, so none is imported from here or from `recalld_client`: `import
recalld_client.frameworks.langchain` is what asks for LangChain. What they share (`conversations`, `placed`) needs
nothing but the client.

Invariant: what fails in here never reaches the user's run, and what the user's model, tools and hooks raise is never
caught. Invariant: where nothing came to mind, and without a daemon, the model is sent exactly what it is sent without
us.
"""
