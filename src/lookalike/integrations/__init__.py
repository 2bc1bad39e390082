"""Hard negatives inside other libraries' trainers; each module needs its library, and only when it is imported."""
