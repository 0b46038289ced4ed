package main

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
		err := watch(ctx, &out, &errs, func(w, _ io.Writer) error {
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
		if want := "--- 2000-01-01 00:00:00\ndrawing 1\n--- 2000-01-01 00:00:02\n--- 2000-01-01 00:00:04\ndrawing 3\n--- 2000-01-01 00:00:37\n"; err != nil || n != 10 || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%v, %d drawings:\n%s", err, n, &out)
		}
		if errs.String() != "relay: nothing listens\n" {
			t.Errorf("%s", &errs)
		}
		bad := errors.New("no relay")
		if err := watch(t.Context(), &out, &errs, func(io.Writer, io.Writer) error { return bad }); err != bad {
			t.Errorf("%v", err)
		}
	})
}
