"""Mathematics that knows nothing of models: special functions, quadrature, linear algebra."""
