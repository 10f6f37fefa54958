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
		var got Retry
		err := got.ReadStored([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v", got, err)
		}
		got.OnErrorTypes[0] = "changed"
	}
	var got Retry
	if err := got.ReadStored([]byte(other)); err != nil || got.MaxRetries != 1 || got.OnErrorTypes != nil {
		t.Errorf("another: %+v, %v", got, err)
	}
	if err := got.ReadStored([]byte(`{"maxRetries": "2"}`)); err == nil || got.MaxRetries != 1 {
		t.Errorf("what is no rule was read: %+v, %v", got, err)
	}
	if err := got.ReadStored([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("after another: %+v, %v", got, err)
	}
}
