package xds

import (
	"errors"
	"strings"
	"testing"
)

// Errors for malformed messages have no prefix of protobuf and no invisible spaces.
func TestErrorsArePlain(t *testing.T) {
	if PlainError(nil) != nil {
		t.Error("Plain(nil) is an error")
	}
	for _, text := range []string{"proto:\u00a0unexpected EOF", "proto: unexpected EOF", "unexpected EOF"} {
		if got := PlainError(errors.New(text)).Error(); got != "unexpected EOF" {
			t.Errorf("%q: %q", text, got)
		}
	}
	cut := []byte{0x0a, 5, 'a'}
	_, sotw := ParseResponse(SotW, cut)
	_, node := new(NodeTable).Intern(cut)
	for what, err := range map[string]error{
		"request": new(Request).Scan(Delta, cut, 0), "response": sotw, "node": node,
	} {
		if err == nil || strings.Contains(err.Error(), "proto:") || strings.ContainsRune(err.Error(), '\u00a0') {
			t.Errorf("%s: %q", what, err)
		}
	}
}
