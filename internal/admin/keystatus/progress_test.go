package keystatus

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
)

func (p *Progress) text() string {
	what := map[bool]string{true: "known", false: "not known"}[p.Known]
	if p.SupersededBy != "" {
		what += ", superseded by " + p.SupersededBy
	}
	return fmt.Sprintf("%s: %d reached, %d nacking, %d pending of %d", what, p.Reached, p.Nacking, p.Pending, p.Clients)
}

// awaiting has a key with an origin and a client, and asks for progress.
type awaiting struct {
	*fixture
	feed *feed
	key  xds.Key
	now  func() inspect.TypeState // a client that has the newest
}

func await(t *testing.T, f func(a *awaiting)) {
	bubble(t, func(x *fixture) {
		c := x.join("web", cds, "*")
		a := &awaiting{fixture: x, feed: x.feed(`web`), key: xds.NewKey("web")}
		a.now = nowOf(a.key, c)
		f(a)
	})
}

// nowOf returns the state of a client that has the newest version.
func nowOf(key xds.Key, c subscriber.Subscriber) func() inspect.TypeState {
	return func() inspect.TypeState {
		held := c.Newest()
		return inspect.TypeState{Key: key, Type: cds, Stream: 1, Node: "now", State: inspect.StateSynced, Lineage: held.Lineage, Has: held.Gen}
	}
}

func (a *awaiting) ask(version, mark string, of ...inspect.TypeState) Progress {
	for i := range of {
		of[i].Host = fmt.Sprint(i) // each is another
	}
	return a.Progress(Awaited{Key: a.key, Type: cds, Version: version, Mark: mark}, states(of...))
}

func (a *awaiting) want(what string, p Progress, want string) Progress {
	a.t.Helper()
	equal(a.t, what, p.text(), want)
	return p
}

func TestProgressCountsClients(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give("v1", "a=1", "b=1")
		v1 := a.ask("v1", "").Mark
		a.later(time.Second)
		has1 := a.now()
		a.feed.give("v2", "a=2")
		has2 := a.now()
		at := func(as inspect.TypeState, node string, stream uint64, refused bool) inspect.TypeState {
			as.Node, as.Stream, as.Since = node, stream, time.Unix(int64(stream), 0)
			if refused {
				as.Nack, as.Final = &subscriber.Nack{Gen: as.Has + 1}, true
			}
			return as
		}
		none := at(has1, "none", 2, false)
		none.Has = 0
		all := []inspect.TypeState{at(has1, "has1", 4, false), at(has2, "has2", 3, false), none, at(has1, "no", 1, true)}
		p := a.want("v2", a.ask("v2", "", all...), "known: 1 reached, 1 nacking, 2 pending of 4")
		equal(t, "the one that refuses and the one that lags", p.NackingClient.Node+" "+p.Laggard.Node, "no none")
		p = a.want("v1", a.ask("v1", v1, all...), "known, superseded by v2: 3 reached, 0 nacking, 1 pending of 4")
		equal(t, "percent", p.Percent, 75)
		st, _ := a.Key(a.key)
		a.want("by its content", a.ask(st.Types[0].Versions[0].ContentVersion, "", has2), "known: 1 reached, 0 nacking, 0 pending of 1")
		// The version has not come yet, so no client has it.
		p = a.want("v3", a.ask("v3", "", has2, all[3]), "not known: 0 reached, 0 nacking, 2 pending of 2")
		equal(t, "newest", p.Newest+" "+p.NewestOrigin, "v2 v2")
		// Without clients nothing is reached.
		p = a.want("nobody", a.ask("v2", ""), "known: 0 reached, 0 nacking, 0 pending of 0")
		equal(t, "without clients", p.Percent, 0)
	})
}

// A version that was replaced before the wait began counts only when it comes again, although
// clients have later ones.
func TestProgressOfAnOlderVersionWaitsForItToComeAgain(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give("v1", "a=1", "b=1")
		a.feed.give("v2", "a=2")
		const not = "not known, superseded by v2: 0 reached, 0 nacking, 1 pending of 1"
		p := a.want("v1", a.ask("v1", "", a.now()), not)
		equal(t, "percent", p.Percent, 0)
		a.want("v1 again", a.ask("v1", p.Mark, a.now()), not)
		newer := a.Progress(Awaited{Key: a.key, Type: cds, Version: "v1", OrNewer: true}, states(a.now()))
		a.want("or newer", newer, "known, superseded by v2: 1 reached, 0 nacking, 0 pending of 1")

		had := a.now()
		a.feed.give("v1", "a=1")
		p = a.want("v1 is there again", a.ask("v1", p.Mark, had), "known: 0 reached, 0 nacking, 1 pending of 1")
		a.want("v1 is taken", a.ask("v1", p.Mark, a.now()), "known: 1 reached, 0 nacking, 0 pending of 1")
		// And replaced by an unknown version.
		a.feed.give("v3", "a=3")
		a.want("v1 is superseded", a.ask("v1", p.Mark, a.now()), "known, superseded by v3: 1 reached, 0 nacking, 0 pending of 1")
	})
}

// A version that was the newest since the wait began counts with what came after it.
func TestProgressOfASupersededVersion(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give("v1", "a=1", "b=1")
		begun := a.want("v2", a.ask("v2", "", a.now()), "not known: 0 reached, 0 nacking, 1 pending of 1").Mark
		a.feed.give("v2", "a=2")
		has2 := a.now()
		a.feed.give("v3", "b=3")
		a.want("never asked for between", a.ask("v2", begun, has2), "known, superseded by v3: 1 reached, 0 nacking, 0 pending of 1")
		a.want("asked for only now", a.ask("v2", "", a.now()), "not known, superseded by v3: 0 reached, 0 nacking, 1 pending of 1")
		a.feed.give("v1", "a=1", "b=1")
		a.want("gone back", a.ask("v2", begun, a.now()), "known, superseded by v1: 1 reached, 0 nacking, 0 pending of 1")
	})
}

// A version that was found and is forgotten later still counts, by its mark.
func TestProgressByItsMark(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give("v1", "a=1", "b=1")
		has1 := a.now()
		a.feed.give("v2", "a=2")
		mark := a.ask("v2", "").Mark
		for i := range 17 { // more than are remembered
			a.feed.give(fmt.Sprint("w", i), fmt.Sprint("b=", i+2))
		}
		a.want("without its mark", a.ask("v2", "", a.now()), "not known: 0 reached, 0 nacking, 1 pending of 1")
		p := a.want("with its mark", a.ask("v2", mark, a.now(), has1), "known, superseded by w16: 1 reached, 0 nacking, 1 pending of 2")
		equal(t, "mark", p.Mark, mark)
		// Another process may use the same number for another version.
		a.want("with another's", a.ask("v2", "1"+mark, a.now()), "not known: 0 reached, 0 nacking, 1 pending of 1")
	})
}

// A refusal counts only for its version, and only while no response that may end it is pending.
func TestProgressOfANACKedVersion(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give("v1", "a=1")
		begun := a.ask("v3", "").Mark
		a.feed.give("v2", "a=2")
		a.feed.give("v2", "b=2")
		v2 := a.ask("v2", "").Mark
		no := a.now()
		no.State, no.Nack, no.Final = inspect.StateNacked, &subscriber.Nack{Gen: no.Has}, true
		no.Has -= 2
		const refused, waits = "0 reached, 1 nacking, 0 pending of 1", "0 reached, 0 nacking, 1 pending of 1"
		a.want("v2", a.ask("v2", "", no), "known: "+refused)
		sent := no
		sent.Final = false
		a.want("while the next response is on its way", a.ask("v2", "", sent), "known: "+waits)
		a.feed.give("v3", "a=3")
		a.want("v3", a.ask("v3", begun, no), "known: "+waits)
		a.want("v2, with v3 in its place", a.ask("v2", v2, no), "known, superseded by v3: "+refused)
	})
}

// The content of a version is that of all its responses.
func TestProgressByAContentThatGrows(t *testing.T) {
	await(t, func(a *awaiting) {
		content := func() string {
			st, _ := a.Key(a.key)
			return st.Types[0].Versions[0].ContentVersion
		}
		a.feed.give("v1", "a=1")
		first := content()
		begun := a.want("its first", a.ask(first, "", a.now()), "known: 1 reached, 0 nacking, 0 pending of 1").Mark
		had := a.now()
		a.feed.give("v1", "b=1")
		whole := content()
		if first == whole {
			t.Error("more of it came, and its content is the same")
		}
		a.want("its first, with the mark", a.ask(first, begun, had), "known: 1 reached, 0 nacking, 0 pending of 1")
		a.want("its first, without one", a.ask(first, "", a.now()), "not known: 0 reached, 0 nacking, 1 pending of 1")
		a.want("the whole", a.ask(whole, "", a.now(), had), "known: 1 reached, 0 nacking, 1 pending of 2")
		a.feed.give("v2", "a=2")
		a.want("superseded", a.ask(first, begun, had), "known, superseded by v2: 1 reached, 0 nacking, 0 pending of 1")
		a.feed.give("v3", "a=1")
		a.want("the same content again", a.ask(whole, "", a.now()), "known: 1 reached, 0 nacking, 0 pending of 1")
	})
}

// A node counts once, by the state furthest behind: with several streams of the type, or REST
// requests for different names.
func TestProgressCountsNodes(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give("v1", "a=1")
		had := a.now()
		a.feed.give("v2", "a=2")
		at := func(of inspect.TypeState, node, host string, stream uint64) inspect.TypeState {
			of.Node, of.Host, of.Stream = node, host, stream
			return of
		}
		has := a.now()
		of := []inspect.TypeState{
			at(has, "n", "h1", 1), at(had, "n", "h1", 2), at(has, "n", "h1", 3), // one is behind
			at(has, "n", "h2", 4),                      // another of the name
			at(has, "", "h3", 5), at(has, "", "h3", 6), // without names they cannot be told
		}
		p := a.Progress(Awaited{Key: a.key, Type: cds, Version: "v2"}, states(of...))
		a.want("nodes", p, "known: 3 reached, 0 nacking, 1 pending of 4")
	})
}

// A node may have lost a connection that the relay still has. So of streams with the same names on
// several connections, the newest decides, in any order. Streams with other names count as well.
func TestProgressCountsTheNewestConnection(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give("v1", "a=1")
		had := a.now()
		a.feed.give("v2", "a=2")
		at := func(of inspect.TypeState, conn int, names, stream uint64) inspect.TypeState {
			of.Node, of.Host, of.Conn, of.Names, of.Stream = "n", "h", conn, names, stream
			return of
		}
		has := a.now()
		is := func(what, want string, of ...inspect.TypeState) {
			t.Helper()
			for range 2 {
				a.want(what, a.Progress(Awaited{Key: a.key, Type: cds, Version: "v2"}, states(of...)), want)
				slices.Reverse(of)
			}
		}
		is("an old connection", "known: 1 reached, 0 nacking, 0 pending of 1", at(had, 1, 7, 1), at(has, 2, 7, 2))
		is("the new one is behind", "known: 0 reached, 0 nacking, 1 pending of 1", at(has, 1, 7, 1), at(had, 2, 7, 2))
		is("the same connection", "known: 0 reached, 0 nacking, 1 pending of 1", at(had, 1, 7, 1), at(has, 1, 7, 2))
		is("other names", "known: 0 reached, 0 nacking, 1 pending of 1", at(had, 1, 7, 1), at(has, 2, 8, 2))
	})
}

// A wait may begin before the key exists: all versions then came since.
func TestProgressOfAKeyThatIsNotInUse(t *testing.T) {
	await(t, func(a *awaiting) {
		other := xds.NewKey("other")
		ask := func(mark string) Progress {
			return a.Progress(Awaited{Key: other, Type: cds, Version: "v1", Mark: mark}, states())
		}
		p := a.want("of no key", ask(""), "not known: 0 reached, 0 nacking, 0 pending of 0")
		equal(t, "in use", p.InUse, false)
		a.join("other", cds, "*")
		f := a.fixture.feed(`other`)
		if in := ask(""); !in.InUse {
			t.Error("a key with a client is not in use")
		}
		f.give("v1", "a=1")
		f.give("v2", "a=2")
		a.want("with the mark", ask(p.Mark), "known, superseded by v2: 0 reached, 0 nacking, 0 pending of 0")
		a.want("without a mark", ask(""), "not known, superseded by v2: 0 reached, 0 nacking, 0 pending of 0")
	})
}
