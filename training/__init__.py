"""What is fitted, and on what: data loaders, generators and trainers. Not part of the distribution."""
