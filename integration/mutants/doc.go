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
// Building takes much longer than most tests. So a function that mutants change
// is built once with all of them: as it is, and as each of them makes it, under
// another name that it calls instead if the environment says so. What changes
// anything but the inside of one function is built by itself.
//
// A mutant that makes its test wait in vain costs what the test's patience is,
// and one that makes it spin, two minutes: then a narrower test is the better one.
//
// # Concurrency
//
// As many tests run at a time as -parallel says: more than there are processors,
// since those of mutants mostly wait for what never comes.
package main
