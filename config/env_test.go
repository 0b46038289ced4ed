package config

import (
	"slices"
	"testing"
)

func TestUnknownVariables(t *testing.T) {
	for _, name := range []string{
		"RELAY_PORT", "RELAY_SERVICE_HOST", "RELAY_SERVICE_PORT", "RELAY_SERVICE_PORT_GRPC", "RELAY_PORT_15010_TCP", "RELAY_PORT_15010_TCP_ADDR",
		"RELAY_ADMIN_PORT", "RELAY_ADMIN_SERVICE_HOST", "RELAY_UPSTREAM_VARIANT", "RELAYS", "OTHER_UPSTREM_VARIANT",
	} {
		t.Setenv(name, "x")
	}
	if got := UnknownEnv(); len(got) > 0 {
		t.Errorf("%v", got)
	}
	t.Setenv("RELAY_UPSTREM_VARIANT", "x")
	t.Setenv("RELAY_COLOUR", "x")
	want := []string{
		"RELAY_COLOUR: unknown variable, ignored",
		"RELAY_UPSTREM_VARIANT: unknown variable, ignored; did you mean RELAY_UPSTREAM_VARIANT?",
	}
	if got := all(t, UnknownEnv().Err()); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
