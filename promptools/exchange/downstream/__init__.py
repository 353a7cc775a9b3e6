"""The client's side of an exchange: the API that it speaks, the commit point, the response and its errors."""
