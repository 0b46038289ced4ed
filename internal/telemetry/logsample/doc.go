// Package logsample is a slog.Handler that writes the first lines of a kind and counts the rest. A
// fleet that causes the same line 50,000 times therefore does not fill the log.
//
// Lines are of one kind if they have the same level, the same message and the same key, type,
// version, reason and origin. The other attributes do not count: they differ from client to
// client. In each Window the first PerKind lines of a kind are written. At the end of the window, a
// line "lines left out" says which kind and how many. A line itself is written at once or never, so
// none is read as news when what it said is over.
//
// A message has at most Kinds kinds in a window. All lines beyond count as one more kind, which
// writes no line at once. So a message has at most Kinds × (PerKind + 1) + 1 lines in a window, for
// any behaviour of clients.
//
// Nothing is left out while the level is debug, and nothing that a user asked for (Requested).
//
// # Concurrency
//
// A Handler is safe for concurrent use. It starts no goroutine but a timer's.
package logsample
