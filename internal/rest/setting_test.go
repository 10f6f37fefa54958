package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// settings is a value for each setting of a job that is not its default. The test
// finds the settings in the contract, so a new one fails until it has a line here;
// nothing else in it names one.
func settings(calendar string) map[string]string {
	return map[string]string{
		"name": `"another"`, "description": `"what it is for"`, "tags": `["nightly"]`,
		"cronExpression": `"0 30 4 * * *"`, "interval": `"PT1H30M"`, "runAt": `"2030-01-02T03:04:05Z"`, "trigger": `"manual"`,
		"timezone": `"Asia/Kolkata"`, "startDate": `"2029-01-02T03:04:05Z"`, "endDate": `"2031-01-02T03:04:05Z"`,
		"jobType": `"function"`, "config": `{"url":"https://example.com/another"}`, "timeout": `7`, "executionTimeout": `60`, "completeWithin": `600`, "priority": `9`,
		"retryConfig":   `{"maxRetries":7,"retryDelayMs":2000,"exponentialBackoff":false,"maxRetryDelayMs":3000,"jitter":0.5,"retryOnErrorTypes":[]}`,
		"jitterSeconds": `60`, "dstGap": `"skip"`, "dstOverlap": `"last"`, "calendars": `[{"calendarId":"` + calendar + `","mode":"exclude"}]`,
		"maxExecutions": `12`, "maxConcurrent": `3`, "concurrencyKey": `"{{job.id}}"`, "overlapPolicy": `"queue_all"`, "overlapQueueLimit": `5`,
		"misfirePolicy": `"fire_all"`, "misfireLimit": `6`, "misfireGraceSeconds": `30`, "disableAfterFailures": `4`,
	}
}

// A setting is stored, read back, versioned, compared and shown by its name in the
// contract, without being named anywhere between the contract and where it acts.
func TestEachSettingOfAJobIsKeptAndShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	values := settings(b.makeCalendar(t, b.ours).ID.String())
	spec := reflect.TypeFor[api.JobSpec]()
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, ok := values[name]
			if !ok {
				t.Fatal("no value that is not its default: add one to settings")
			}
			body := map[string]json.RawMessage{"name": []byte(`"plain"`), "jobType": []byte(`"http"`), "config": []byte(`{"url":"https://example.com/"}`), "interval": []byte(`"PT1H"`)}
			send := func(method, path string) answer {
				raw, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				return b.do(t, request{method: method, path: path, token: token, body: string(raw)})
			}
			path := base + "/jobs/" + read[api.Job](t, send("POST", base+"/jobs"), http.StatusCreated).ID.String()
			body[name] = json.RawMessage(value)
			goesWith := name
			if slices.Contains([]string{"cronExpression", "runAt", "trigger"}, name) {
				goesWith = "interval" // of which there is one
				delete(body, "interval")
			}
			if name == "jobType" {
				goesWith, body["config"] = "config", []byte(`{"modulePath":"builtin","functionName":"noop"}`)
			}
			read[api.Job](t, send("PUT", path), http.StatusOK)
			var want any
			if err := json.Unmarshal([]byte(value), &want); err != nil {
				t.Fatal(err)
			}
			get := func(path string) map[string]any {
				return read[map[string]any](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
			}
			shown, version := get(path), get(path+"/versions/2")
			for where, got := range map[string]any{"the job": shown[name], "its version": version["definition"].(map[string]any)[name]} {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s shows another value (-want +got):\n%s", where, diff)
				}
			}
			changed := get(path + "/versions")["items"].([]any)[0].(map[string]any)["changedFields"].([]any)
			if len(changed) == 0 {
				t.Error("the version says that nothing changed")
			}
			for _, field := range changed {
				if first, _, _ := strings.Cut(fmt.Sprint(field), "."); first != name && first != goesWith {
					t.Errorf("the version says that %v changed", field)
				}
			}
		})
	}
}
