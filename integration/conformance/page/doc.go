// Page makes docs/conformance.md: which rule of the protocol is proven by which
// tests, in which combinations of variants. It reads both from the tests
// themselves: the names say which rules they prove and where, and go test says
// that they passed.
//
//	TestP23_P24_What                     proves P23 and P24
//	TestScripts/p23-what                 so does a script
//	TestP23_What/sotw-delta/ads          SotW upstream, incremental downstream, aggregated
//	TestP23_What/delta-delta/per-type    incremental on both sides, a stream a type
//	TestP23_What/sotw                    of one variant, which is no combination
//
// `make test` keeps the results of the tests where `make conformance` and `make
// conformance-check` find them, so that nothing runs twice. rules.txt has the
// rules.
//
// # Concurrency
//
// None.
package main
