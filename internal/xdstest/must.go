package xdstest

import "testing"

// Must is for a call that returns a value and an error. The function that it returns ends the test
// if there is an error, and returns the value otherwise:
//
//	l := xdstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}

// NoError ends the test if there is an error.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
