//! Element types.

/// Defines the element types with their names and sizes in bytes.
macro_rules! dtypes {
    ($($DType:ident $name:literal $size:literal $doc:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $(#[doc = $doc] $DType,)*
        }

        impl DType {
            /// All element types.
            pub const ALL: &[DType] = &[$(DType::$DType),*];

            /// The size of an element in bytes.
            #[must_use]
            pub fn size(self) -> usize {
                match self {
                    $(DType::$DType => $size,)*
                }
            }

            /// The name in safetensors files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(DType::$DType => $name,)*
                }
            }
        }
    };
}

dtypes! {
    F64 "F64" 8 "64-bit float.";
    F32 "F32" 4 "32-bit float.";
    F16 "F16" 2 "16-bit float.";
    BF16 "BF16" 2 "16-bit brain float.";
    I64 "I64" 8 "64-bit integer.";
    I32 "I32" 4 "32-bit integer.";
    I16 "I16" 2 "16-bit integer.";
    I8 "I8" 1 "8-bit integer.";
    U64 "U64" 8 "64-bit unsigned integer.";
    U32 "U32" 4 "32-bit unsigned integer.";
    U16 "U16" 2 "16-bit unsigned integer.";
    U8 "U8" 1 "Byte.";
    Bool "BOOL" 1 "Truth value, in a byte.";
}
