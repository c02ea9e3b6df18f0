// Carries the precompiled header that every layer reuses.
