//go:build !race

package supervisor

func raceEnabled() bool { return false }
