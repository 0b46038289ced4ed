package redact

import (
	"strings"
	"testing"
)

// quoting is what Envoy says of a resource that breaks a constraint: all of it.
var quoting = ("Proto constraint validation failed (ClusterValidationError.Name: value length must be at least 1 characters): " +
	strings.Repeat(`load_assignment { endpoints { lb_endpoints { endpoint { address { socket_address { address: "10.0.0.1" port_value: 8080 } } } } } } `, 40))[:4096]

// Of a text that nobody has asked for yet.
func BenchmarkTextNew(b *testing.B) {
	for b.Loop() {
		_ = redacted(quoting)
	}
}

// Of one that was asked for just before.
func BenchmarkTextAgain(b *testing.B) {
	for b.Loop() {
		_ = Text(quoting)
	}
}
