package cluster

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"
)

// keyBytes is the size of an AES-256 key.
const keyBytes = 32

// readKeys reads a file of gossip keys: one a line in base64, as "openssl rand -base64 32" prints it.
// Empty lines are ignored.
func readKeys(path string) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keyBytes { // the line is not quoted: it may be a key
			return nil, fmt.Errorf("%s: line %d: not %d bytes in base64", path, i+1, keyBytes)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no key", path)
	}
	return keys, nil
}

// setKeys makes a keyring hold these keys, of the right size: the first encrypts, all decrypt.
func setKeys(ring *memberlist.Keyring, keys [][]byte) {
	// Each UseKey moves a key to the front, so keys to be removed become the last ones. RemoveKey of
	// another key would write to the slice that readers of the keyring have.
	for _, key := range slices.Backward(keys) {
		_ = ring.AddKey(key) // fails for other sizes only
		_ = ring.UseKey(key) // fails for unknown keys only
	}
	for {
		held := ring.GetKeys()
		last := held[len(held)-1]
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, last) }) {
			return
		}
		_ = ring.RemoveKey(last) // fails for the first key only
	}
}
