// Mutants shows that the tests prove what they say. Each file here, one a rule
// of the protocol, holds changes of the code that break the rule, with the
// tests that must fail then. The program applies them one by one and lists
// those that no test noticed:
//
//	make mutants              all of them
//	make mutants RULES="p23 p36"
//
// A file is a list of mutants, an empty line between them:
//
//	# given-up names stay subscribed
//	file internal/fanout/delta.go
//	run ./internal/fanout ^TestP24_
//	-	next.Names = next.Names.Remove(plainNames(r.Unsubscribe)...)
//	+
//
// The lines after - stand in the file exactly once, one after the other; those
// after + replace them. A test of this package holds all mutants to that, so
// that a change of the code which moves one is noticed in CI, where running
// them all would take too long. The code is changed by go's -overlay: no file
// of the checkout is ever touched.
//
// # Concurrency
//
// As many go commands run at a time as -parallel says; each works on files of
// its own.
package main
