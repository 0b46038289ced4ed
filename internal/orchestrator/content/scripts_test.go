package content

import (
	"testing"
	"time"
)

// Deletions take effect 5 s after they were first seen. Other changes do not wait, and a repetition does
// not restart the wait. The version is always the newest (P61). What no client has acknowledged is
// deleted at once.
func TestP36_Removals(t *testing.T) {
	runScripts(t, false, 5*time.Second, map[string]string{
		"first answer": `
			names a b; update a=1 -b      -> a=1; b=-`,
		"a deletion waits": `
			wildcard; state a=1 b=1; ack  -> *a=1; *b=1; version 1
			state c=1 -b                  -> *b=1; *c=1; version 2; next 5s
			3s; state -b                  -> *b=1; version 3; next 2s
			1.999s                        -> *b=1
			1ms                           -> *b=-; version 3`,
		"what returns was not deleted": `
			names a; update a=1; ack; update -a; 4s -> a=1
			update a=2; 10s               -> a=2`,
		"a new resource that no client has does not wait, also if another deletion does": `
			wildcard; state b=1; ack      -> *b=1
			state bad=1 -b; state bad=2   -> *bad=2
			state -bad                    -> *bad=-; *b=1
			state good=1; ack; state -good -> *good=1
			5s                            -> *good=-; *b=-`,
		"it does not wait either if the key subscribes to more names meanwhile": `
			names a b; update b=1; ack; update a=1; names a b c; update -a -> a=-`,
		"all wait before the first ACK, because clients may have them since before a restart": `
			wildcard; state a=1 b=1; state -b -> *b=1
			ack; state -a                 -> *a=1
			5s                            -> *a=-; *b=-`,
		"a client has the wildcard's copy of a name whose own copy came later": `
			wildcard; state a=1; ack; names a; update a=1 -> a=1
			no wildcard; update -a        -> a=1
			5s                            -> a=-`,
		"an error in place of the resource": `
			names x; update x=1; ack; update -x !x -> x=1; not error x
			5s                            -> x=-; error x`,
		"a name that is no longer wanted does not become absent (P65)": `
			names x y; update x=1 y=1; ack; update -y -> y=1
			names x; 2s; names x y; 5s    -> y=?`,
	})
}

// A delta origin's answer to a wildcard is complete once no response has added a name for as long as the
// longest pause so far, 1 s at least, and settled after 15 s. While the stream is closed, and until a new
// one has a response, the rest may be missing. Time alone completes nothing then.
func TestP67_Completion(t *testing.T) {
	runScripts(t, false, 5*time.Second, map[string]string{
		"one response": `
			open; wildcard; part a=1; 999ms -> *a=1; not complete
			1ms                             -> complete; not settled
			13.999s                         -> not settled
			1ms                             -> settled`,
		"several": `
			open; wildcard; part a=1; 900ms; part b=1; 900ms; part c=1; 999ms -> not complete
			1ms                             -> complete`,
		"a slow first response": `
			open; wildcard; 4s; part a=1; 3s; part b=1; 3.999s -> not complete
			1ms                             -> complete`,
		"pauses that are longer than settling takes": `
			open; wildcard; 20s; part a=1; 10s; part b=1; 19.999s -> not complete
			1ms                             -> complete; settled`,
		"responses that add nothing": `
			open; wildcard; part a=1; 400ms; part a=2; 400ms; part a=3; 199ms -> not complete
			1ms                             -> complete`,
		"the first pause begins when the wildcard is requested": `
			open; 1h; wildcard; 2s; part a=1; 1.999s -> not complete
			1ms                             -> complete`,
		"a SotW origin answers in one response": `
			open; wildcard; state a=1       -> complete; settled`,
		"a removal counts at once, while the stream is open": `
			open; wildcard; part a=1        -> ~gone=?
			part -gone                      -> ~gone=-
			closed                          -> ~gone=?`,
		"the stream ends between two parts": `
			open; wildcard; part a=1; closed; 1m -> not complete
			open; 5s                        -> not complete
			part a=1 b=1; 4.999s            -> not complete
			1ms                             -> complete`,
		"a new stream restarts the answer, and a response of another type does not affect it": `
			open; wildcard; endpoints wildcard; part a=1; 500ms; closed; 1s; open; endpoints part l=1; 5s -> not complete; endpoints *l=1
			part a=1 b=1; 4.999s            -> not complete
			1ms                             -> complete`,
		"a silent new stream completes nothing (P55)": `
			open; wildcard; part a=1; closed; open; 1m -> not complete`,
		"a deletion that takes effect later is no response (P36)": `
			open; wildcard; part a=1 b=1; ack; 500ms; part -b; closed; 20s -> not complete; ~a=1; *b=-; ~b=?`,
		"a part for the subscription that ended": `
			open; wildcard; part a=1 b=1; no wildcard; wildcard; old part -b; 1m -> not complete
			part a=1 b=1; 2m                -> complete
			names n; update n=1             -> n=1`,
		"a SotW response for the subscription that ended": `
			open; wildcard; part a=1 b=1; no wildcard; wildcard; old state a=1; 1m -> not complete`,
	})
}

// A client that lists a name is served the wildcard's copy until the name is answered. A client with
// the wildcard gets the wildcard's. A deletion in one part leaves the other's copy.
func TestP50_BothHoldAName(t *testing.T) {
	runScripts(t, false, 0, map[string]string{
		"both": `
			wildcard; names n             -> n=?; *n=?
			state n=w                     -> n=w; *n=w
			update n=n                    -> n=n; *n=w
			state -n                      -> n=n; *n=-
			state n=w; update -n          -> n=w; *n=w
			state -n                      -> n=-; *n=-
			state n=w                     -> n=w; *n=w`,
		"the wildcard's copy is deleted before the name is answered (P25)": `
			wildcard; names n other; state n=w -> n=w
			state -n -other               -> n=-; other=?
			update n=n                    -> n=n`,
	})
}

// Requests to a SotW origin omit the name of endpoints once the last cluster that leads to it is removed.
// Clients keep the endpoints until the removal takes effect.
func TestP52_OmittedNames(t *testing.T) {
	const start = "wildcard; endpoints names a b; state a>a=1 b>b=1; endpoints update a=1 b=1; ack -> requests a,b"
	runScripts(t, true, 5*time.Second, map[string]string{
		"the cluster is removed": start + `
			state -a                      -> requests b; endpoints a=1
			3s; state -a                  -> requests b; endpoints a=1
			2s                            -> requests b; endpoints a=?; *a=-
			state c>a=1; endpoints update a=2 -> requests a,b; endpoints a=2`,
		"it returns in time": start + `
			state -a; 3s; state a>a=1     -> requests a,b
			1h                            -> endpoints a=1`,
		"another cluster leads to the same endpoints, or the cluster leads to others": `
			wildcard; endpoints names x y; state a>x=1 b>x=1 c>c=1; ack; state -a -> requests x,y
			state b>y=1                   -> requests y
			state -b                      -> requests
			state b>x=1 c>y=1             -> requests x,y`,
		"no client of clusters is left that the origin could tell of a return": start + `
			state -a                      -> requests b
			no wildcard                   -> requests a,b`,
		"clusters by name": `
			names a b; endpoints names a b; update a>a=1 b>b=1; ack; update -a -> requests b
			names b                       -> requests a,b
			update -b                     -> requests a
			names                         -> requests a,b`,
		"a name that is given up": start + `
			state -a; endpoints names b; 5s; endpoints names a b -> requests a,b`,
	})
	runScripts(t, true, 0, map[string]string{"without a delay": start + `
			state -a                      -> requests b; endpoints a=?`})
	runScripts(t, false, 5*time.Second, map[string]string{"requests to a delta origin have only what changes": start + `
			state -a; 1m                  -> requests a,b`})
}

// What clients may wait for, and what must not be served any more, is published at once.
func TestUrgent(t *testing.T) {
	runScripts(t, false, 0, map[string]string{
		"first answers": `
			names a b c; wildcard; update a=1 -> urgent
			publish; update a=2           -> not urgent
			update -b                     -> urgent
			publish; update !c            -> urgent
			publish; state                -> urgent
			publish; state x=1            -> not urgent`,
		"a resource expires, unless the origin sends it again (P62)": `
			names a b; update a=1@10s b=1@10s; publish; 9s; update b=1@10s; publish; 999ms -> a=1; b=1; not urgent
			1ms                           -> a=?; b=1; urgent
			publish; 8.999s               -> b=1
			1ms                           -> b=?; urgent
			update a=1@10s -b; 10s        -> a=?; b=-`,
		"the first of two types expires": `
			names a; update a=1@5s; endpoints names x; endpoints update x=1@10s -> next 5s
			update a=1@20s                -> next 10s`,
		"a resource of the wildcard expires": `
			wildcard; state a=1@10s b=1; publish; 10s -> *a=?; *b=1; *c=-; urgent
			state a=1                     -> *a=1`,
		"a stream ends that brought do_not_cache resources (P63)": `
			names a b; wildcard; update a=1@never b=1; state x=1@never y=1; publish; ended -> a=?; b=1; *x=?; *y=1; urgent
			publish; ended                -> not urgent`,
		"no client wants do_not_cache resources any more (P63)": `
			names a b; wildcard; update a=1@never b=1; state x=1@never; publish; names b -> urgent
			publish; no wildcard          -> urgent
			publish; names                -> not urgent`,
	})
}

// A resource is held as long as any of its names, aliases or globs is subscribed. A late answer is dropped.
func TestP65_ForgottenByAlias(t *testing.T) {
	runScripts(t, false, 0, map[string]string{
		"aliases": `
			names a b; update v|a|b=1 w|z=1 -> holds v
			names b                       -> holds v
			names c                       -> holds
			update v|a|b=1                -> holds`,
		"globs": `
			names xdstp://o/T/c/* xdstp://o/T/c/x; update xdstp://o/T/c/x=1 xdstp://o/T/c/y=1 -> holds xdstp://o/T/c/x,xdstp://o/T/c/y
			names xdstp://o/T/c/x         -> holds xdstp://o/T/c/x
			names                         -> holds`,
		"a resource removed under its name is absent by its alias (P26)": `
			names a; update v|a=1; update -v -> a=-; holds`,
	})
}

// What is stored is served for names that the origin has not answered, until it does (P66). A client that
// resumes does not get it.
func TestP66_Stored(t *testing.T) {
	runScripts(t, false, 0, map[string]string{
		"the wildcard's copy": `
			wildcard; state c=1; store; no wildcard; names c -> not has d; has c; c=?
			serve                         -> c=1
			wildcard; serve               -> *c=1; ~c=?; not complete`,
		"name by name": `
			names q x; update q=1 x=1; store; names; names q x; update x=2; serve -> q=1; x=2; urgent
			update -q; serve              -> q=-; x=2`,
		"aliases": `
			names a; update v|a=1; store; names; names a; serve -> holds v`,
	})
}

// Whether there is anything to serve: a resource, or the origin's statement that there is none (P53).
func TestP53_Has(t *testing.T) {
	runScripts(t, false, 0, map[string]string{
		"": `
			names a b c d; wildcard       -> not has a
			update a=1 -b !c              -> has a; has b; has c; not has d
			state d=1                     -> has d`,
	})
}
