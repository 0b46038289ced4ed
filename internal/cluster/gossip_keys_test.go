package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xdstest"

	"github.com/hashicorp/memberlist"
)

// putKeys makes a file hold the keys of these numbers.
func putKeys(t testing.TB, path string, numbers ...byte) {
	t.Helper()
	var text strings.Builder
	for _, n := range numbers {
		text.WriteString(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, keyBytes)) + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeyFile(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(make([]byte, keyBytes))
	path := filepath.Join(t.TempDir(), "keys")
	for text, want := range map[string]string{
		"":                        ": no key",
		"\n \n":                   ": no key",
		good + "\n\nsecret!\n":    ": line 3: not 32 bytes in base64",
		good + "\n" + good[4:]:    ": line 2: not 32 bytes in base64",
		good + "\r\n" + good:      "",
		"\n" + good + "\n" + good: "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readKeys(path)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != path+want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A keyring holds exactly the keys that it was last given, in their order.
func TestSetKeys(t *testing.T) {
	ring := new(memberlist.Keyring)
	for _, numbers := range []string{"1", "12", "21", "2", "345", "54", "1", "2345", "3"} {
		var keys [][]byte
		for _, n := range []byte(numbers) {
			keys = append(keys, bytes.Repeat([]byte{n}, keyBytes))
		}
		held := ring.GetKeys()
		before := bytes.Join(held, nil)
		setKeys(ring, keys)
		if !bytes.Equal(bytes.Join(ring.GetKeys(), nil), bytes.Join(keys, nil)) {
			t.Errorf("%s: %q", numbers, ring.GetKeys())
		}
		if !bytes.Equal(bytes.Join(held, nil), before) {
			t.Errorf("%s: the slice of a reader was changed", numbers)
		}
	}
}

// Keys are rotated while members gossip: appended, moved to the front, and removed. No member is lost.
func TestKeyRotation(t *testing.T) {
	run(t, func(t *testing.T, n *network) {
		var relays []*relay
		var reads []chan bool // tells a relay to read its file
		add := func(keys ...byte) {
			r := n.new(string(rune('a'+len(relays))), func(o *Options) { o.KeyFile = writeKeys(t, keys...) })
			read := make(chan bool)
			r.watch = func(ctx context.Context, _ *slog.Logger, paths func() []string, changed func() bool) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case want := <-read:
						if ok := changed(); ok != want {
							t.Errorf("%s: %t", paths(), ok)
						}
					}
				}
			}
			relays, reads = append(relays, r), append(reads, read)
			xdstest.Run(t, r.Run)
		}
		for range 4 {
			add(1)
		}
		sleep(5 * time.Second)
		changed := relays[0].Changed()
		for _, keys := range [][]byte{{1, 2}, {2, 1}, {2}} {
			for i, r := range relays { // one after the other
				putKeys(t, r.options.KeyFile, keys...)
				reads[i] <- true
				sleep(20 * time.Second)
			}
			sleep(2 * time.Minute)
			expect(t, "a alive, b alive, c alive, d alive", relays...)
		}
		if closed(changed) {
			t.Error("a member was lost")
		}
		for _, r := range relays {
			if s := r.log.String(); strings.Contains(s, "level=WARN") {
				t.Errorf("log of %s:\n%s", r.options.Name, s)
			}
		}
		add(2)
		sleep(5 * time.Second)
		expect(t, "a alive, b alive, c alive, d alive, e alive", relays...)

		// A file with faults changes nothing.
		for range 3 {
			if err := os.WriteFile(relays[0].options.KeyFile, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			reads[0] <- false
			sleep(time.Second)
		}
		sleep(2 * time.Minute)
		expect(t, "a alive, b alive, c alive, d alive, e alive", relays...)
		if relays[0].log.Count("the gossip keys cannot be used") != 1 {
			t.Errorf("log:\n%s", relays[0].log)
		}
	})
}
