package schedule

import (
	_ "embed"
	"errors"
	"strings"
	"sync"

	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

// zoneNames are the names that a hint may give, one a line: those of tzdata's
// zone.tab and zone1970.tab. Other names are as good, if the zone files have them.
//
//go:embed zones.txt
var zoneNames string

// zoneLists are the names, and for each city the first name that ends with it.
var zoneLists = sync.OnceValue(func() (lists struct {
	names, cities []string
	ofCity        map[string]string
},
) {
	lists.ofCity = map[string]string{"UTC": "UTC", "GMT": "GMT"} // which are of no place
	lists.cities = []string{"UTC", "GMT"}
	for name := range strings.FieldsSeq(zoneNames) {
		city := name[strings.LastIndexByte(name, '/')+1:]
		lists.names = append(lists.names, name)
		if lists.ofCity[city] == "" {
			lists.cities, lists.ofCity[city] = append(lists.cities, city), name
		}
	}
	return lists
})

// unknownZone says that a zone is not known, and which one was probably meant.
func unknownZone(name string) error {
	if near := nearestZone(name); near != "" {
		return errors.New("is not a known zone; did you mean " + near + "?")
	}
	return errUnknownZone
}

func nearestZone(name string) string {
	name = strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
	if strings.Contains(name, "/") {
		return suggest.Nearest(name, zoneLists().names)
	}
	return zoneLists().ofCity[suggest.Nearest(name, zoneLists().cities)]
}
