package converter

import (
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
)

func newJSONConverter(options map[string]string) (Converter, error) {
	schemas, replace := true, true
	c := &connect.JSON{}
	if err := connect.Booleans.Set(&schemas, options, "schemas.enable"); err != nil {
		return nil, err
	}
	if err := connect.Booleans.Set(&replace, options, "replace.null.with.default"); err != nil {
		return nil, err
	}
	if v, ok := options["decimal.format"]; ok {
		switch strings.ToUpper(strings.TrimSpace(v)) {
		case "BASE64":
		case "NUMERIC":
			c.Numeric = true
		default:
			return nil, &connect.OptionError{Option: "decimal.format", Value: v, Reason: "is not one of BASE64, NUMERIC"}
		}
	}
	if v, ok := options["schemas.cache.size"]; ok {
		if _, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32); err != nil {
			return nil, &connect.OptionError{Option: "schemas.cache.size", Value: v, Reason: "is not a whole number"}
		}
	}
	c.WithoutSchema, c.KeepNull = !schemas, !replace
	return c, nil
}
