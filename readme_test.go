package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// TestReadmeFlagTable: README's table has every flag, in the order of --help, with its default.
func TestReadmeFlagTable(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(readme), "| flag | default | meaning |\n")
	require.True(t, found)
	rows := regexp.MustCompile("(?m)^\\| `([^`]*)` \\| *(.*?) *\\|").FindAllStringSubmatch(table[:strings.Index(table, "\n\n")], -1)

	var want [][2]string
	flags(new(raw)).VisitAll(func(f *pflag.Flag) {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		isBool := f.Value.Type() == "bool"
		if arg, _ := pflag.UnquoteUsage(f); !isBool && f.NoOptDefVal != "" {
			name += " [" + arg + "]"
		} else if !isBool {
			name += " " + arg
		}
		value := f.DefValue
		action := f.Name == "list-signals" || f.Name == "version" || f.Name == "help"
		switch {
		case value == "" || action:
			value = ""
		case value == "true":
			value = "on"
		case value == "false":
			value = "off"
		default:
			value = "`" + value + "`"
		}
		want = append(want, [2]string{name, value})
	})
	var got [][2]string
	for _, row := range rows {
		got = append(got, [2]string{row[1], row[2]})
	}
	require.Equal(t, want, got)
}
