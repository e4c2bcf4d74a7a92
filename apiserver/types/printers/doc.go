// Package printers makes the cells of server-side tables: what kubectl prints.
//
// A Printer computes the rows of one resource from its columns, which are data
// (kinds.Column), those of custom resources included (additionalPrinterColumns, as
// columns of a typed JSONPath). A column is a JSONPath, or a CEL expression that may
// call the functions of this package. Of each function the name stands in one table
// (functions, functions2); they know the shapes that the API publishes, such as pods and
// ingresses, and not which resource they print.
//
// Cells are values of JSON, or Ageing: a text that changes with time alone. So a row
// is made once for each version of an object (package codec), no matter who lists it and whenever.
//
// Everything here is pure and safe for concurrent use. What a cell may cost is bounded,
// because custom resources bring columns and objects of their own.
package printers
