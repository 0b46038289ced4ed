package fanout

import "testing"

func TestP10_Nonces(t *testing.T) {
	a, b := newNonces(7, 1), newNonces(7, 2)
	seen := map[string]bool{}
	for i := range uint64(2000) {
		seq := a.reserve(1)
		n := a.append(nil, seq)
		if seen[string(n)] || seq != i+1 || a.number(n) != seq {
			t.Fatalf("nonce %q is number %d, repeated %v", n, a.number(n), seen[string(n)])
		}
		seen[string(n)] = true
		m := b.append(nil, b.reserve(1))
		if a.number(m) != 0 || b.number(n) != 0 {
			t.Fatalf("%q and %q: a nonce of the other stream is known", n, m)
		}
	}
	for _, bad := range []string{"", "1", string(a.prefix[:]), string(a.prefix[:]) + "zzzz", string(a.prefix[:]) + "!"} {
		if a.number([]byte(bad)) != 0 {
			t.Fatalf("%q is known", bad)
		}
	}
}
