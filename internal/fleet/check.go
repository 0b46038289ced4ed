package fleet

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"xdsrelay/internal/xds"
)

const (
	maxViolations = 100
	maxNonces     = 1 << 16 // for each stream
)

// violate records a violation by the server. Needs mu.
func (c *Client) violate(s *stream, t xds.TypeURL, format string, args ...any) {
	if len(c.violations) >= maxViolations {
		return
	}
	msg := fmt.Sprintf(format, args...)
	if t != "" {
		msg = label(t) + ": " + msg
	}
	c.violations = append(c.violations, fmt.Sprintf("stream %d: %s", s.number, msg))
}

// check records the violations in a response. It returns an error if a real client rejects the
// response, and none if a real client ignores the fault. Needs mu.
func (c *Client) check(s *stream, url xds.TypeURL, f *response) error {
	var fault error
	wrong := func(rejects bool, format string, args ...any) {
		c.violate(s, url, format, args...)
		if rejects && fault == nil {
			fault = fmt.Errorf(format, args...)
		}
	}
	t := c.types[url]
	if t == nil || !t.requested {
		wrong(false, "a response of a type that was not requested on this stream: %q", f.typeURL)
		return nil
	}
	if f.nonce == "" {
		wrong(false, "a response without a nonce")
	} else {
		h := xxh3.HashString(f.nonce)
		if _, ok := s.nonces[h]; ok {
			wrong(false, "nonce %q repeated", f.nonce)
		} else if len(s.nonces) < maxNonces {
			s.nonces[h] = struct{}{}
		}
	}

	seen := make(map[string]bool, len(f.items))
	for i := range f.items {
		it := &f.items[i]
		if it.hasBody && it.typeURL != f.typeURL {
			wrong(true, "resource %q is of type %q", it.name, it.typeURL)
		}
		if it.name == "" {
			wrong(true, "a resource without a name")
			continue
		}
		if seen[it.name] {
			wrong(true, "resource %q twice in a response", it.name)
			continue
		}
		seen[it.name] = true
		if !t.covers(it.name) && !t.wantedBefore(it.name) {
			wrong(false, "resource %q was not requested", it.name)
		}
	}
	for _, name := range f.removed {
		if seen[name] {
			wrong(true, "name %q both in resources and in removed_resources", name)
		}
		if !t.covers(name) && !t.wantedBefore(name) {
			wrong(false, "removed name %q was not requested", name)
		}
	}
	return fault
}
