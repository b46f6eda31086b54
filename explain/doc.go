// Package explain says what each table is taken for, who decided so, and which record a row
// would become. It sends nothing and changes nothing.
package explain
