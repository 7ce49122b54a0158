// Package nearest finds the words somebody probably meant: it is what turns
// `unknown signal "QIUT"` into a message that also says "did you mean SIGQUIT?".
//
// Contract: a suggestion is worth less than none when it is far-fetched, so only
// words within one slip of the keyboard (two from six letters on) are given.
package nearest
