"""The parts every daemon shares: settings, logs, signals, listeners, HTTP, bounded work on one event loop."""
