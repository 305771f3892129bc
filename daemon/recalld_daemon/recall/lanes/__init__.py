"""The lanes of a recall: each a retriever that can be tested alone, pure over a small port."""
