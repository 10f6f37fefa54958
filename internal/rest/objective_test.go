package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/identity"
)

// An objective that was read is sent back with other values, as long as nobody changed it meanwhile.
func TestObjectiveIsChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	made := b.do(t, request{method: http.MethodPost, path: base + "/objectives", token: token, body: `{"name":"a","kind":"onTime","tag":"x","thresholdMs":5000,"target":0.99}`})
	var objective struct{ ID string }
	if err := json.Unmarshal([]byte(made.body), &objective); err != nil || made.status != http.StatusCreated {
		t.Fatalf("%d %s", made.status, made.body)
	}
	path := base + "/objectives/" + objective.ID
	read := b.do(t, request{method: http.MethodGet, path: path, token: token})
	if !tagged(read, 1) {
		t.Errorf("ETag %s", read.header.Get("ETag"))
	}
	put := func(body, ifMatch string) answer {
		header := map[string]string{}
		if ifMatch != "" {
			header["If-Match"] = ifMatch
		}
		return b.do(t, request{method: http.MethodPut, path: path, token: token, body: body, header: header})
	}
	changed := put(strings.Replace(read.body, `"target":0.99`, `"target":0.95`, 1), read.header.Get("ETag"))
	if changed.status != http.StatusOK || !tagged(changed, 2) || !strings.Contains(changed.body, `"target":0.95`) || !strings.Contains(changed.body, `"windowDays":30`) {
		t.Errorf("sent back with another target: %d %s", changed.status, changed.body)
	}
	for name, test := range map[string]struct {
		body, ifMatch string
		want          int
		says          string
	}{
		"of the version before":    {`{"name":"b","kind":"onTime","tag":"x","thresholdMs":5000,"target":0.9}`, read.header.Get("ETag"), http.StatusPreconditionFailed, "version 2"},
		"as it was read before":    {read.body, "", http.StatusPreconditionFailed, "version"},
		"another tag":              {`{"name":"b","kind":"onTime","tag":"y","thresholdMs":5000,"target":0.9}`, "", http.StatusBadRequest, `"tag"`},
		"another threshold":        {`{"name":"b","kind":"onTime","tag":"x","thresholdMs":1,"target":0.9}`, "", http.StatusBadRequest, `"thresholdMs"`},
		"a job instead of the tag": {`{"name":"b","kind":"onTime","jobId":"` + objective.ID + `","thresholdMs":5000,"target":0.9}`, "", http.StatusBadRequest, `"jobId"`},
		"another kind":             {`{"name":"b","kind":"success","tag":"x","target":0.9}`, "", http.StatusBadRequest, `"kind"`},
		"a longer window":          {`{"name":"b","kind":"onTime","tag":"x","thresholdMs":5000,"target":0.9,"windowDays":32}`, "", http.StatusBadRequest, "windowDays"},
	} {
		if got := put(test.body, test.ifMatch); got.status != test.want || !strings.Contains(got.body, test.says) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}
