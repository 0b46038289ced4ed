// Package explain shows which key a node gets and why, what an origin answers to two nodes, and which
// clients of a running relay get other keys under other rules.
//
// # Concurrency
//
// The functions may be called concurrently. Compare asks the origin for both nodes at once, and returns
// when its streams have ended. What the functions return is not safe for concurrent use.
package explain
