"""Documented import path; `vector` lies below."""
