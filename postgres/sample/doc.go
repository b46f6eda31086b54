// Package sample reads rows of the configured tables with SQL, in the form in which the stream
// would bring them: the newest ones, one by a column's value, the largest value.
//
// It imports postgres and catalog. Commands use it; nothing that streams does.
package sample
