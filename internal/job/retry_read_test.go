package job

import (
	"reflect"
	"testing"
)

// TestARuleThatIsReadTwice reads one rule twice and another between, and changes what it got.
func TestARuleThatIsReadTwice(t *testing.T) {
	const text, other = `{"maxRetries": 2, "retryOnErrorTypes": ["TIMEOUT"]}`, `{"maxRetries": 1}`
	want := Retry{MaxRetries: 2, OnErrorTypes: []string{"TIMEOUT"}}
	for range 3 {
		got, err := readRetry([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v", got, err)
		}
		got.OnErrorTypes[0] = "changed"
	}
	if got, err := readRetry([]byte(other)); err != nil || got.MaxRetries != 1 || got.OnErrorTypes != nil {
		t.Errorf("another: %+v, %v", got, err)
	}
	if _, err := readRetry([]byte(`{"maxRetries": "2"}`)); err == nil {
		t.Error("what is no rule was read")
	}
	if got, err := readRetry([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("after another: %+v, %v", got, err)
	}
}
