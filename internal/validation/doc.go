// Package validation finds the faults of a configuration that its text does not show: in rules and
// expressions, which it compiles, and in the files and directories that it names. It also has the
// warnings. relay validate, a start and a reload find the same faults.
//
// # Concurrency
//
// The functions may be called concurrently. What is [Compiled] is immutable. Nothing here starts a
// goroutine.
package validation
