package xds

import (
	"errors"
	"regexp"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoPrefix is what protobuf's messages begin with: the space is of one kind
// or the other, at random, so that nobody compares them.
var protoPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]*`)

// Plain is an error of protobuf without what it begins with, and without the
// space that no terminal shows and no search finds. nil stays nil.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(protoPrefix.ReplaceAllString(err.Error(), ""))
}

// wireError is what protowire means by a negative length.
func wireError(n int) error { return Plain(protowire.ParseError(n)) }
