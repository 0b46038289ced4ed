package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Second)
		defer stop()
		var out, errs bytes.Buffer
		n := 0
		err := Watch(ctx, &out, &errs, func(w, _, _ io.Writer) error {
			if n++; n == 2 {
				return errors.New("nothing listens")
			}
			if n == 3 { // a slow answer
				time.Sleep(3 * time.Second)
			}
			fmt.Fprintln(w, "drawing", n)
			return nil
		})
		// At 0, 2, 4, 37, 39 and so on.
		if want := "--- 2000-01-01 00:00:00\ndrawing 1\n--- 2000-01-01 00:00:02\n--- 2000-01-01 00:00:04\ndrawing 3\n--- 2000-01-01 00:00:37\ndrawing 4\n"; err != nil || n != 10 || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%v, %d drawings:\n%s", err, n, &out)
		}
		if errs.String() != "relay: nothing listens\n" {
			t.Errorf("%s", &errs)
		}
		out.Reset()
		bad := errors.New("no relay")
		if err := Watch(t.Context(), &out, &errs, func(w, _, _ io.Writer) error { fmt.Fprintln(w, "x"); return bad }); err != bad || out.Len() > 0 {
			t.Errorf("%v, %q", err, &out)
		}
	})
}

// A terminal shows the first lines of a text. An ellipsis replaces lines that do not fit.
func TestCutLines(t *testing.T) {
	for _, c := range []struct {
		text   string
		height int
		want   string
		left   int
	}{
		{"", 3, "", 3},
		{"a\nb\n", 3, "a\nb\n", 1},
		{"a\nb\n", 2, "a\nb\n", 0},
		{"a\nb\nc\n", 2, "a\n…\n", 0},
		{"a\nb\n", 1, "…\n", 0},
		{"a\n", 0, "", 0},
		{"a\n12345\n", 3, "a\n12345\n", 0}, // the terminal has 4 columns
		{"a\n12345\nb\n", 3, "a\n…\n", 0},
		{"\x1b[31m1234\x1b[0m\n", 1, "\x1b[31m1234\x1b[0m\n", 0},
	} {
		if got, left := cutLines(c.text, 4, c.height); got != c.want || left != c.left {
			t.Errorf("%q in %d lines: %q and %d lines, want %q and %d", c.text, c.height, got, left, c.want, c.left)
		}
	}
}
