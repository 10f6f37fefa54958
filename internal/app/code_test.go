package app

import "testing"

// The address that the standalone program prints signs in once, and nothing like it does.
func TestCodeIsGoodOnce(t *testing.T) {
	t.Parallel()
	c := newCode(func() (string, error) { return "token", nil })
	for _, other := range []string{"", c.text[1:], c.text + "a"} {
		if _, ok := c.redeem(other); ok {
			t.Errorf("%q signs in", other)
		}
	}
	if token, ok := c.redeem(c.text); !ok || token != "token" {
		t.Errorf("the code gave %q, %t", token, ok)
	}
	if _, ok := c.redeem(c.text); ok {
		t.Error("the code signed in twice")
	}
}
