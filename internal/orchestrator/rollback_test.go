package orchestrator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xdsrelay/internal/xds"
)

// name has the origin answer names at a version: "n=1" with a resource, "n=-" with none.
func (f *feed) name(t *testing.T, version string, specs ...string) {
	t.Helper()
	f.answer(t, false, version, specs...)
}

// answer is name, or for the wildcard.
func (f *feed) answer(t *testing.T, wildcard bool, version string, specs ...string) {
	t.Helper()
	u := xds.Update{Type: cds, Origin: "origin", Version: version, Wildcard: wildcard, Received: time.Now()}
	for _, s := range specs {
		name, content, _ := strings.Cut(s, "=")
		if content == "-" {
			u.Removed = append(u.Removed, name)
		} else {
			u.Changed = append(u.Changed, resource(t, cds, name, content))
		}
	}
	f.hand(t, u)
	synctest.Wait()
}

// What a version replaced is there again: it was taken back, whatever the versions are
// called, and in how many responses each of them came.
func TestProgressOfARollback(t *testing.T) {
	for _, c := range []struct {
		what          string
		before, since string // responses: a version and its resources
		waited, want  string
	}{
		{"each in one response", "v1 a=1 b=1", "v2 a=2;v3 a=1", "v2", "taken back, superseded by v3"},
		{"what was before came in two", "v1 a=1;v1 b=1", "v2 a=2;v3 a=1", "v2", "taken back, superseded by v3"},
		{"the first response changed nothing", "v1 a=1", "v2;v2 a=2;v3 a=1", "v2", "taken back, superseded by v3"},
		{"the version came in two", "v1 a=1 b=1", "v2 a=2;v2 b=2;v3 a=1 b=1", "v2", "taken back, superseded by v3"},
		{"of its rollback a part has come", "v1 a=1 b=1", "v2 a=2 b=2;v3 b=1", "v2", "taken back, superseded by v3"},
		{"its rollback is more than that", "v1 a=1 b=1", "v2 a=2;v3 a=1 b=3", "v2", "taken back, superseded by v3"},
		{"further back", "v1 a=1;v2 a=2", "v3 a=3;v4 a=1", "v3", "taken back, superseded by v4"},
		{"what it added is gone", "v1 a=1", "v2 b=2;v3 b=-", "v2", "taken back, superseded by v3"},
		{"what it removed is back", "v1 a=1 b=1", "v2 b=-;v3 b=1", "v2", "taken back, superseded by v3"},
		{"it replaced nothing, and what was before it is gone back from", "v1 a=1;v2 a=2", "v3;v4 a=1", "v3", "taken back, superseded by v4"},
		{"what it replaced it undid itself, and what was before it is gone back from", "v1 a=1 b=1;v2 b=2", "v3 a=3;v3 a=1;v4 b=1", "v3", "taken back, superseded by v4"},
		{"under a version between", "v1 a=1", "v2 a=2;v3 c=1;v4 a=1", "v2", "taken back, superseded by v4"},

		{"what came in two responses is nothing that was there", "v1 a=1 b=1", "v2 a=2;v3 a=1;v3 a=3 b=3", "v2", "known, superseded by v3"},
		{"it is gone back from, and to", "v1 a=1", "v2 a=2;v3 a=1;v4 a=2", "v2", "known, superseded by v4"},
		{"it is as it was once, and goes on", "v1 a=2;v2 a=1", "v3 a=2;v4 b=1", "v3", "known, superseded by v4"},
		{"other things are gone back from", "v1 a=1 b=1;v2 b=2", "v3 a=3;v4 b=1", "v3", "known, superseded by v4"},
		{"new names only", "v1 a=1", "v2 a=2;v3 b=3", "v2", "known, superseded by v3"},
		{"it went and came in itself", "v1 a=1 b=1", "v2 a=2;v2 a=1 b=2;v3 c=1", "v2", "known, superseded by v3"},
		{"an older name for the same", "v1 a=1", "v2 a=2;v1", "v2", "known, superseded by v1"},
	} {
		for _, named := range []bool{false, true} {
			bubble(t, nil, func(w *world) {
				a := &awaiting{world: w, t: t, key: xds.NewKey("web")}
				wanted := map[bool][]string{false: {"*"}, true: {"a", "b", "c"}}[named]
				client := w.join("web", cds).want(wanted...)
				a.feed = w.feed("web")
				say := func(responses string) {
					for r := range strings.SplitSeq(responses, ";") {
						words := strings.Fields(r)
						a.feed.answer(t, !named, words[0], words[1:]...)
					}
				}
				if named { // what is not there is said
					say("v0 a=- b=- c=-")
				} else {
					say("v0")
				}
				a.now = nowOf(a.key, client)
				say(c.before)
				begun := a.ask("-", "").Mark
				say(c.since)
				p := a.ask(c.waited, begun, a.now())
				if got := p.text(); !strings.HasPrefix(got, c.want+": ") || p.Known != (p.Reached == 1) {
					t.Errorf("%s, names %v: %s, want %s", c.what, named, got, c.want)
				}
			})
		}
	}
}

// Names that nobody had asked for are gone back from only by what the versions are
// called.
func TestProgressOfARollbackOfNewNames(t *testing.T) {
	await(t, func(a *awaiting) {
		c := a.join("names", cds).want("a", "b")
		a.key, a.feed = xds.NewKey("names"), a.world.feed("names")
		a.now = nowOf(a.key, c)
		a.feed.name(t, "v1", "a=1")
		begun := a.ask("v2", "").Mark
		a.feed.name(t, "v2", "b=2")
		a.feed.name(t, "v1", "a=1")
		a.want("the older answers again", a.ask("v2", begun, a.now()), "known, superseded by v1: 1 reached, 0 refusing, 0 pending of 1")
		a.feed.name(t, "v1", "b=1")
		a.want("and otherwise", a.ask("v2", begun, a.now()), "taken back, superseded by v1: 0 reached, 0 refusing, 1 pending of 1")
	})
}

// A version that only added names replaced nothing; what others do and undo meanwhile is
// nothing to it.
func TestProgressOfNewNamesWhileOthersFlap(t *testing.T) {
	await(t, func(a *awaiting) {
		c := a.join("names", cds).want("a", "b")
		a.key, a.feed = xds.NewKey("names"), a.world.feed("names")
		a.now = nowOf(a.key, c)
		a.feed.name(t, "v1", "a=1")
		a.feed.name(t, "v2", "a=2")
		begun := a.ask("v3", "").Mark
		a.feed.name(t, "v3", "b=1")
		a.feed.name(t, "v4", "a=1")
		a.want("a flaps", a.ask("v3", begun, a.now()), "known, superseded by v4: 1 reached, 0 refusing, 0 pending of 1")
	})
}

// Of what is forgotten nobody takes anything for undone: what a version replaced that is
// much older says nothing of one that replaced nothing.
func TestProgressAfterAGap(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give(t, "v1", "a=1", "b=1")
		a.ask("v2", "")
		a.feed.give(t, "v2", "a=2")
		a.feed.give(t, "v3", "a=1")
		for i := range maxRollouts {
			a.feed.give(t, fmt.Sprint("w", i), fmt.Sprint("b=", i+2))
		}
		mark := a.ask("x", "").Mark
		a.feed.give(t, "x")
		for i := range 2 * maxRollouts {
			a.feed.give(t, fmt.Sprint("y", i))
		}
		a.want("of no effect", a.ask("x", mark, a.now()), "known, superseded by y31: 1 reached, 0 refusing, 0 pending of 1")
	})
}

// The content of a version is that of all its responses.
func TestProgressByAContentThatGrows(t *testing.T) {
	await(t, func(a *awaiting) {
		content := func() string {
			st, _ := a.reg.Key(a.key)
			return st.Types[0].Versions[0].ContentVersion
		}
		a.feed.give(t, "v1", "a=1")
		first := content()
		begun := a.want("its first", a.ask(first, "", a.now()), "known: 1 reached, 0 refusing, 0 pending of 1").Mark
		had := a.now()
		a.feed.give(t, "v1", "b=1")
		whole := content()
		if first == whole {
			t.Error("more of it came, and its content is the same")
		}
		a.want("its first, by who waited", a.ask(first, begun, had), "known: 1 reached, 0 refusing, 0 pending of 1")
		a.want("its first, by who did not", a.ask(first, "", a.now()), "not known: 0 reached, 0 refusing, 1 pending of 1")
		a.want("the whole", a.ask(whole, "", a.now(), had), "known: 1 reached, 0 refusing, 1 pending of 2")
		a.feed.give(t, "v2", "a=2")
		a.want("superseded", a.ask(first, begun, had), "known, superseded by v2: 1 reached, 0 refusing, 0 pending of 1")
		a.feed.give(t, "v3", "a=1")
		a.want("the same content again", a.ask(whole, "", a.now()), "known: 1 reached, 0 refusing, 0 pending of 1")
	})
}

// The wildcard and names come on streams of their own, with versions that are counted
// apart: that of one is in the place of none of the other.
func TestP50_TheVersionsOfOneStreamSupersedeNoneOfTheOther(t *testing.T) {
	bubble(t, nil, func(w *world) {
		all := w.join("web", cds).want("*")
		synctest.Wait()
		f := w.feed("web")
		connect(f)
		some := w.join("web", cds).want("n", "m", "o")
		synctest.Wait()
		s := w.second("web")
		connect(s)
		a := &awaiting{world: w, t: t, key: xds.NewKey("web")}
		a.now = nowOf(a.key, all)
		const reached = "known: 1 reached, 0 refusing, 0 pending of 1"
		f.give(t, "5", "a=1")
		s.name(t, "7", "n=1")
		begun := a.ask("6", "").Mark
		f.give(t, "6", "a=2")
		a.want("the wildcard's", a.ask("6", begun, a.now()), reached)
		s.name(t, "7", "m=1")
		a.want("when names are answered", a.ask("6", begun, a.now()), reached)
		a.want("who asks now", a.ask("6", "", a.now()), reached)
		a.want("that of names", a.ask("7", "", a.now()), reached)
		s.name(t, "8", "n=2")
		f.give(t, "6", "a=2")
		f.give(t, "5", "a=1")
		a.want("gone back, in its own", a.ask("6", begun, a.now()), "taken back, superseded by 5: 0 reached, 0 refusing, 1 pending of 1")
		a.want("and not in the other", a.ask("8", begun, a.now()), reached)
		s.name(t, "9", "n=1")
		a.want("gone back, in the other", a.ask("8", begun, a.now()), "taken back, superseded by 9: 0 reached, 0 refusing, 1 pending of 1")

		// A part that is gone has nothing that counts on.
		begun = a.want("of names", a.ask("9", "", a.now()), reached).Mark
		some.leave()
		pass(time.Hour)
		f.give(t, "10", "a=3")
		a.want("nobody asks for names", a.ask("9", "", a.now()), "not known, superseded by 10: 0 reached, 0 refusing, 1 pending of 1")
		a.want("by who waited", a.ask("9", begun, a.now()), "known, superseded by 10: 1 reached, 0 refusing, 0 pending of 1")
	})
}

// Nor is that of one in the place of an older one, or what it undid, to the other.
func TestP50_TheVersionsOfOneStreamTakeNoneOfTheOtherBack(t *testing.T) {
	bubble(t, nil, func(w *world) {
		all := w.join("web", cds).want("*")
		synctest.Wait()
		f := w.feed("web")
		w.join("web", cds).want("n")
		s := w.second("web")
		connect(f, s)
		a := &awaiting{world: w, t: t, key: xds.NewKey("web")}
		a.now = nowOf(a.key, all)
		s.name(t, "1", "n=1")
		f.give(t, "9", "a=1")
		begun := a.ask("8", "").Mark
		s.name(t, "8", "n=2")
		s.name(t, "9", "n=3")
		a.want("a number that the other has had", a.ask("8", begun, a.now()), "known, superseded by 9: 1 reached, 0 refusing, 0 pending of 1")
		f.give(t, "10")
		f.give(t, "11", "b=1")
		s.name(t, "12", "n=2")
		a.want("of what replaced nothing", a.ask("10", begun, a.now()), "known, superseded by 11: 1 reached, 0 refusing, 0 pending of 1")
	})
}

// What is noted of versions is bounded, and given back. Of many names some are enough.
func TestReplacementsAreBounded(t *testing.T) {
	var p past
	v := newView(xds.TypeOf(cds), nil, &p)
	say := func(version, content string) {
		u := xds.Update{Type: cds, Version: version, Wildcard: true}
		for i := range 1000 {
			u.Changed = append(u.Changed, resource(t, cds, fmt.Sprintf("c%03d", i), content))
		}
		v.builder.Apply(u)
		v.snapshot(1)
	}
	say("v1", "1")
	equal(t, "of what is new", p.replaced.Load(), 0)
	say("v2", "2")
	one := p.replaced.Load()
	if one < maxReplaced/2 || one > maxReplaced {
		t.Errorf("%d bytes", one)
	}
	say("v3", "1")
	all := v.rollouts.all()
	equal(t, "taken back", xds.TakenBack(all, 1, v.held.Load()), true)
	for i := range 3 * maxRollouts {
		say(fmt.Sprint("w", i), fmt.Sprint(i))
	}
	equal(t, "of many", p.replaced.Load(), maxRollouts*one)
	p.replaced.Add(allReplaced)
	say("x", "x")
	equal(t, "where there is much", p.replaced.Load() <= allReplaced+(maxRollouts-1)*one+fewReplaced, true)
	p.replaced.Add(-allReplaced)
	v.close()
	equal(t, "left", p.replaced.Load(), 0)
}

// Who asks for versions that never come takes those away for which somebody waits.
func TestProgressBesideWhoAsksForNothing(t *testing.T) {
	await(t, func(a *awaiting) {
		a.feed.give(t, "v1", "a=1")
		mark := a.ask("v2", "").Mark
		a.feed.give(t, "v2", "a=2")
		mark = a.ask("v2", mark, a.now()).Mark
		for i := range maxAwaited {
			a.ask(fmt.Sprint("nothing", i), "")
		}
		for i := range maxRollouts + 1 {
			a.feed.give(t, fmt.Sprint("w", i), fmt.Sprint("b=", i))
		}
		p := a.ask("v2", mark, a.now())
		if !p.Known {
			t.Errorf("a second after it was asked for: %s", p.text())
		}
	})
}

// A version without effect stands for the one before it, also where somebody asks for
// another name meanwhile.
func TestProgressOfARollbackBesideANewName(t *testing.T) {
	for _, asks := range []bool{false, true} {
		await(t, func(a *awaiting) {
			c := a.join("names", cds).want("a", "b")
			a.key, a.feed = xds.NewKey("names"), a.world.feed("names")
			a.now = nowOf(a.key, c)
			a.feed.name(t, "v1", "a=1")
			a.feed.name(t, "v2", "a=2")
			begun := a.ask("v3", "").Mark
			a.feed.name(t, "v3")
			if asks { // the client's first question for b is answered, by what was there all the time
				a.feed.name(t, "v3", "b=1")
			}
			mark := a.ask("v3", begun).Mark
			a.feed.name(t, "v4", "a=1")
			p := a.ask("v3", mark, a.now())
			if !p.TakenBack {
				t.Errorf("asked %v: %s", asks, p.text())
			}
		})
	}
}
